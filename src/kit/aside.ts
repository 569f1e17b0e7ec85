/** Work that nobody waits for, at most once at a time. Where it fails, the next call does what it left. */
export function aside(work: () => Promise<void>): () => void {
  let underWay = false;
  return () => {
    if (underWay) return;
    underWay = true;
    work()
      .catch(() => {
        // The next one does it.
      })
      .finally(() => (underWay = false));
  };
}
