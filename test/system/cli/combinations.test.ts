/**
 * Never two at work, checked by what they write: ways to work, ways to be started and ways to end, in random combinations that a seed
 * decides. A few of them here, and 200 with HOLDFAST_MATRIX=1.
 */
import { existsSync } from 'node:fs';
import { expect } from 'vitest';
import { seededRandom } from '../../servers/seeded-random.js';
import { test } from './boxed.js';
import { MAIN, type Sandbox, type Started, until } from './sandbox.js';
import { Surgery } from './surgery.js';

/**
 * How the work comes to be done by a process that is not the command. timeout(1) puts what it runs into the background of a
 * terminal, where a shell with job control stops itself until it is in the foreground: at a terminal it takes --foreground.
 */
const WORKS = {
  'by the command': (work: string) => `exec ${work}`,
  'by a child': (work: string) => `${work}; echo after`,
  'under timeout(1)': (work: string) => `timeout 1000 ${work}; echo after`,
  'as a job': (work: string) => `set -m; ${work} & wait`,
  'by an orphan': (work: string) => `(${work} &); while :; do sleep 0.05; done`,
  'in another session, as sudo does': (work: string) => `setsid -w ${work}; echo after`,
  'by a job under timeout(1)': (work: string) =>
    `[ -w /dev/tty ] 2>&- && front=--foreground; timeout $front 1000 sh -c 'set -m; ${work} & wait'; echo after`,
};
/** What it does when it is asked to end. */
const MANNERS = { polite: '', stubborn: `trap '' TERM HUP INT;` };
const AROUND = ['nothing', 'timeout', 'terminal', 'tmux'] as const;
const ENDS = ['evict', 'loss', 'SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGTSTP', 'SIGTERM twice'] as const;

interface Combination {
  readonly work: keyof typeof WORKS;
  readonly manners: keyof typeof MANNERS;
  readonly around: (typeof AROUND)[number];
  readonly end: (typeof ENDS)[number];
}

const SEED = Number(process.env['HOLDFAST_SEED'] ?? 1);
const COUNT = Number(process.env['HOLDFAST_COMBINATIONS'] ?? (process.env['HOLDFAST_MATRIX'] ? 200 : 12));

function combinations(): Combination[] {
  const random = seededRandom(SEED);
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)]!;
  return Array.from({ length: COUNT }, () => ({
    work: pick(Object.keys(WORKS) as (keyof typeof WORKS)[]),
    manners: pick(Object.keys(MANNERS) as (keyof typeof MANNERS)[]),
    around: pick(AROUND),
    end: pick(ENDS),
  }));
}

async function start(box: Sandbox, { work, manners, around, end }: Combination): Promise<Started> {
  const log = box.path('log');
  box.write('work.sh', `${MANNERS[manners]} while :; do echo first >> ${log}; sleep 0.02; done`);
  box.write('command.sh', WORKS[work](`sh ${box.path('work.sh')}`));
  // A loss that is awaited must not take minutes.
  const ttl = end === 'loss' || end === 'SIGTSTP' ? '4s' : '30s';
  const args = ['run', 'a', '--ttl', ttl, '--grace', '500ms', '--', 'sh', box.path('command.sh')];
  if (around === 'nothing') return box.start(args);
  if (around === 'timeout') return box.startCommand('timeout', ['1000', process.execPath, MAIN, ...args]);
  const text = `'${process.execPath}' '${MAIN}' ${args.join(' ')}`;
  // tmux lets its own child go on at once when it is stopped: so that is a shell.
  if (around === 'tmux') return startInTmux(box, `${text}; exit $?`);
  return box.startCommand('script', ['-qefc', `exec ${text}`, '/dev/null'], { interactive: true });
}

const tmux = (box: Sandbox): string[] => ['-S', box.path('tmux')];

/** The server is a child of ours, and ends with its only window. */
async function startInTmux(box: Sandbox, text: string): Promise<Started> {
  const server = box.startCommand('tmux', [...tmux(box), '-f', '/dev/null', '-D']);
  await until(() => existsSync(box.path('tmux')));
  const window = ['new-session', '-d', text, ';', 'set', '-s', 'exit-empty', 'on'];
  expect(await box.startCommand('tmux', [...tmux(box), ...window]).ended).toMatchObject({ code: 0 });
  return server;
}

/** What a person does in that window. Its whole process group is told, or all of its session. */
const BY_HAND: Readonly<Record<string, readonly string[]>> = {
  SIGINT: ['send-keys', 'C-c'],
  SIGQUIT: ['send-keys', 'C-\\'],
  SIGTSTP: ['send-keys', 'C-z'],
  SIGHUP: ['kill-session'],
};

async function holder(box: Sandbox): Promise<{ id: string; pid: number }> {
  const { id, label } = (await box.claims('a')).find(({ state }) => state === 'held')!;
  return { id, pid: Number(label.split(':').at(-1)) };
}

async function endIt(box: Sandbox, first: Started, combination: Combination): Promise<void> {
  const { work, manners, around, end } = combination;
  const { id, pid } = await holder(box);
  const kill = async (signal: NodeJS.Signals): Promise<void> => {
    // The keyboard means a shell with job control, not us. That window being closed means all.
    const byHand = around === 'tmux' && (signal === 'SIGHUP' || !work.includes('job'));
    const hand = byHand ? BY_HAND[signal] : undefined;
    if (hand) return void (await box.startCommand('tmux', [...tmux(box), ...hand]).ended);
    // timeout(1) is not for stops: it would only stop itself.
    if (around === 'timeout' && signal !== 'SIGTSTP' && signal !== 'SIGCONT') first.child.kill(signal);
    else process.kill(pid, signal);
  };
  if (end === 'evict') return void (await box.run(['evict', 'a', id]));
  if (end === 'loss') {
    using surgery = new Surgery(box);
    return surgery.deafen();
  }
  if (end === 'SIGTSTP') {
    await kill(end);
    await until(() => box.text('log').includes('second'));
    await kill('SIGCONT');
    // script(1) stops with its child.
    return void first.child.kill('SIGCONT');
  }
  if (end === 'SIGTERM twice') {
    await kill('SIGTERM');
    await kill('SIGTERM');
  } else await kill(end);
  // Work that ignores a signal goes on, with the lock. A shell ends of a SIGINT only if the child that it waits for does.
  const ignores = manners === 'stubborn' && (end === 'SIGINT' || (work === 'by the command' && end !== 'SIGQUIT'));
  if (ignores) await box.run(['evict', 'a', id]);
}

for (const [number, combination] of combinations().entries()) {
  const { work, manners, around, end } = combination;
  test.concurrent(`${number}: ${manners} work ${work}, around it ${around}, ends by ${end}`, async ({ box }) => {
    const first = await start(box, combination);
    await until(() => box.text('log').includes('first'));
    const script = `for i in 1 2 3 4 5 6 7 8 9 10; do echo second >> ${box.path('log')}; sleep 0.05; done`;
    const second = box.start(['run', 'a', '--', 'sh', '-c', script]);
    await box.waiters('a', 1);
    await endIt(box, first, combination);
    expect(await second.ended).toMatchObject({ code: 0 });
    await first.ended;
    const lines = box.text('log').trimEnd().split('\n');
    expect(lines.slice(lines.indexOf('second'))).toEqual(Array.from({ length: 10 }, () => 'second'));
  });
}
