/**
 * One process of a test, told what to do by messages and answering each with one: { call, ok } or { call, error }.
 * It uses the built package as a user's process would.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { Holdfast } from 'holdfast';
import { fork } from 'node:child_process';

let locks;
/** Processes of its own, for tests that need several in one pid namespace. */
const children = [];
let calls = 0;
let lease;
let aborted = false;

const actions = {
  open: ({ url, ttl, label }) => {
    locks = new Holdfast(url, { ttl, label });
  },
  acquire: async ({ name, timeout }) => {
    lease = await locks.mutex(name).acquire(timeout === undefined ? {} : { timeout });
    lease.signal.addEventListener('abort', () => (aborted = true));
    return `${lease.token}`;
  },
  release: () => lease.release(),
  look: () => ({ held: lease.held, state: lease.state, aborted }),
  /** Read-modify-write of a register, presenting the token with the read. */
  write: async ({ name, value, present }) => {
    const register = locks.register(name);
    if (present) await register.get(lease);
    await register.set(value, lease);
  },
  /** As a careless user would: the file itself protects nothing. */
  count: async ({ name, file, times }) => {
    for (let i = 0; i < times; i += 1) {
      await locks.mutex(name).run(() => writeFileSync(file, `${Number(readFileSync(file, 'utf8')) + 1}`));
    }
  },
  /** The same with several files at once, in any order; answers how often each was written. */
  storm: async ({ names, folder, times }) => {
    const written = Object.fromEntries(names.map((name) => [name, 0]));
    for (let i = 0; i < times; i += 1) {
      const some = names.filter(() => Math.random() < 0.4).sort(() => Math.random() - 0.5);
      if (some.length === 0) continue;
      await locks.all(some.map((name) => locks.mutex(name))).run(() => {
        for (const name of some) {
          const file = `${folder}/${name}`;
          writeFileSync(file, `${Number(readFileSync(file, 'utf8')) + 1}`);
          written[name] += 1;
        }
      });
    }
    return written;
  },
  /** Commits until it is killed. */
  toil: async ({ name }) => {
    for (;;) await (await locks.mutex(name).acquire()).release();
  },
  close: () => locks.close(),
  fork: ({ count }) => {
    for (let i = 0; i < count; i += 1)
      children.push(fork(import.meta.filename, { execPath: process.execPath, execArgv: [] }));
  },
  /** Asks one of them. */
  relay: ({ at, action, args }) =>
    new Promise((resolve, reject) => {
      const call = (calls += 1);
      children[at].on('message', function hear(answer) {
        if (answer.call !== call) return;
        children[at].off('message', hear);
        if (answer.error) reject(Object.assign(new Error(answer.error.message), { code: answer.error.code }));
        else resolve(answer.ok);
      });
      children[at].send({ call, action, args });
    }),
  kill: ({ at }) => {
    children[at].kill('SIGKILL');
  },
};

async function perform({ call, action, args }) {
  try {
    process.send({ call, ok: (await actions[action](args ?? {})) ?? null });
  } catch (error) {
    process.send({ call, error: { code: error.code, message: error.message } });
  }
}

process.on('message', (message) => void perform(message));
process.on('disconnect', () => process.exit());
