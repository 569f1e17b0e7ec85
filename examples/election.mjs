// One leader at a time. Two instances stand here for two processes; a third one only watches.
import { Holdfast } from 'holdfast';

const options = { ttl: '2s' };
const first = new Holdfast('memory:', options);
const second = new Holdfast('memory:', options);
const watcher = new Holdfast('memory:', options);

// campaign waits for office and gives a term, which is a lease.
const term = await first.election('scheduler').campaign({ value: 'http://first:8080' });

// lead does the same around a function, and campaigns again if the term is lost while it runs.
const done = new AbortController();
const leading = second.election('scheduler').lead({ value: 'http://second:8080' }, async ({ signal }) => {
  const end = AbortSignal.any([signal, done.signal]); // a leader's work must stop when its term is lost
  if (!end.aborted) await new Promise((resolve) => end.addEventListener('abort', resolve));
  return 'second has led';
});

for await (const leader of watcher.election('scheduler').observe()) {
  console.log(`leader: ${leader?.value ?? 'nobody'}`);
  if (!leader) break;
  if (leader.token === term.token)
    await term.release(); // the first resigns, the second follows
  else done.abort();
}
console.log(await leading);

await Promise.all([first.close(), second.close(), watcher.close()]);

// Output:
// leader: http://first:8080
// leader: http://second:8080
// leader: nobody
// second has led
