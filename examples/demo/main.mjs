// npm run demo: four processes contend for one lock in a SQLite file. One is killed while it holds, one is frozen for
// longer than its ttl and wakes up believing that it still holds. Nobody loses an update, and you can watch why.
import { fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Holdfast } from 'holdfast';

const folder = mkdtempSync(join(tmpdir(), 'holdfast-demo-'));
const url = `sqlite:${join(folder, 'locks.db')}`;
const startedAt = performance.now();
const now = () => performance.now() - startedAt;
const history = []; // { worker, from, to, token, end }
const watchers = new Set();
const workers = ['ada', 'ben', 'cleo', 'dan'].map(start);

function start(name) {
  const child = fork(new URL('worker.mjs', import.meta.url), [url, name]);
  const worker = { name, child, turn: undefined, frozen: undefined };
  child.on('message', (message) => note(worker, message));
  return worker;
}

function note(worker, { event, token, code, kept }) {
  if (event === 'holds') {
    worker.turn = { worker: worker.name, from: now(), to: undefined, token: BigInt(token), end: '' };
    history.push(worker.turn);
    say(worker, `holds the lock with token ${token}`);
  } else if (event === 'works') {
    worker.turn.working = true;
  } else if (event === 'refused') {
    say(worker, `wanted to write with an old token: refused, ${code}`);
    worker.turn.end = 'refused';
  } else {
    if (!kept) say(worker, 'learnt that it had lost the lock');
    if (worker.turn) worker.turn.to = now();
    worker.turn = undefined;
  }
  for (const watcher of watchers) watcher();
}

function say(worker, text) {
  console.log(`${(now() / 1000).toFixed(2).padStart(6)} s  ${worker.name.padEnd(5)} ${text}`);
}

/** Waits for a condition, looked at after every event. */
function until(condition) {
  return new Promise((resolve) => {
    const look = () => {
      const found = condition();
      if (!found) return;
      watchers.delete(look);
      resolve(found);
    };
    watchers.add(look);
    look();
  });
}

const holder = () => workers.find(({ turn }) => turn?.to === undefined && turn && !turn.end);
// In the middle of its work, and not of a transaction: a process that is frozen inside one blocks the whole file.
const turnsSince = (count) => () => history.length >= count && holder()?.turn.working && holder();

console.log('Four processes, one lock, one SQLite file; ttl 1 s.\n');

const victim = await until(turnsSince(6));
victim.child.kill('SIGKILL');
victim.turn.to = now();
victim.turn.end = 'killed';
victim.turn = undefined;
say(victim, 'IS KILLED while it holds the lock');

const sleeper = await until(turnsSince(history.length + 4));
const frozenFrom = now();
sleeper.child.kill('SIGSTOP');
say(sleeper, 'IS FROZEN while it holds the lock');
const overtaken = history.length;
await until(() => history.length >= overtaken + 3);
sleeper.child.kill('SIGCONT');
sleeper.frozen = { from: frozenFrom, to: now() };
say(sleeper, 'WAKES UP and goes on as if nothing had happened');
const lateTurn = sleeper.turn;
await until(() => lateTurn.end === 'refused' && lateTurn.to);
await until(turnsSince(history.length + 2));

const living = workers.filter(({ child }) => child.exitCode === null && child.signalCode === null);
await Promise.all(living.map(({ child }) => new Promise((done) => child.once('exit', done) && child.send('stop'))));

const locks = new Holdfast(url);
const { value } = await locks.register('order:42').get();
await locks.close();
rmSync(folder, { recursive: true });

drawTimeline();
const grew = history.every(({ token }, at) => at === 0 || token > history[at - 1].token);
const finished = history.filter(({ to, end }) => to && !end).length;
console.log(`\n${history.length} turns; tokens grew with every one: ${grew ? 'yes' : 'NO'}.`);
console.log(
  `${finished} turns were finished, and ${value} updates are in the register. The killed and the frozen left none.`,
);
process.exitCode = grew && Math.abs(Number(value) - finished) <= 1 ? 0 : 1;

/** One row for each process: █ holds, ░ frozen, ✗ killed or refused. */
function drawTimeline() {
  const width = 72;
  const end = now();
  const column = (ms) => Math.min(width - 1, Math.floor((ms / end) * width));
  console.log(`\n${' '.repeat(6)}0 s${' '.repeat(width - 9)}${(end / 1000).toFixed(1)} s`);
  for (const { name, frozen } of workers) {
    const row = Array.from({ length: width }, () => '·');
    const paint = (from, to, mark) => row.fill(mark, column(from), Math.max(column(from) + 1, column(to)));
    for (const turn of history.filter(({ worker }) => worker === name)) {
      paint(turn.from, frozen && turn.end === 'refused' ? frozen.from : (turn.to ?? end), '█');
      if (turn.end) row[column(turn.end === 'killed' ? turn.to : (frozen?.to ?? turn.to))] = '✗';
    }
    if (frozen) paint(frozen.from, frozen.to, '░');
    if (frozen) row[column(frozen.to)] = '✗';
    console.log(`${name.padEnd(5)} ${row.join('')}`);
  }
  console.log('      █ holds the lock   ░ frozen   ✗ killed, or refused by the fence');
}
