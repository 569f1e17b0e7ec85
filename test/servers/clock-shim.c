/*
 * Shifts the clocks of one process while it runs, when loaded by LD_PRELOAD.
 *
 * HOLDFAST_CLOCK names a file of two native int64: what to add, in nanoseconds, to the wall clock and to the monotonic
 * clock. It is mapped into memory, so a write to the file is seen by the next look at the clock, without a system call.
 * No malloc and no locks, because allocators read the clock while they are being set up: libfaketime hangs redis-server
 * (jemalloc) for that reason.
 *
 * Timed waits are not shifted. Programs that ask the kernel without the C library (Go, so etcd) are not affected.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL

struct offsets {
  int64_t wall_ns;
  int64_t monotonic_ns;
};

static volatile struct offsets none;
static volatile struct offsets *offsets = &none;

__attribute__((constructor)) static void map_offsets(void) {
  const char *path = getenv("HOLDFAST_CLOCK");
  if (path == NULL) return;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  void *mapped = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) offsets = mapped;
}

static int64_t offset_of(clockid_t clock) {
  switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
      return offsets->wall_ns;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
      return offsets->monotonic_ns;
    default: /* The clocks of processes and threads count work, not time. */
      return 0;
  }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = syscall(SYS_clock_gettime, clock, now);
  int64_t offset_ns = offset_of(clock);
  if (result != 0 || offset_ns == 0) return result;
  int64_t ns = (int64_t)now->tv_sec * NS_PER_S + now->tv_nsec + offset_ns;
  now->tv_sec = ns / NS_PER_S;
  now->tv_nsec = ns % NS_PER_S;
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict timezone) {
  (void)timezone;
  struct timespec exact;
  int result = clock_gettime(CLOCK_REALTIME, &exact);
  if (result != 0) return result;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec exact;
  if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return (time_t)-1;
  if (seconds != NULL) *seconds = exact.tv_sec;
  return exact.tv_sec;
}
