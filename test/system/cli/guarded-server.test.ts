/** A Redis that has just started grants nothing for a while: a job that does not wait for others waits for that. */
import { describe, expect } from 'vitest';
import { LOOPBACK } from '../../servers/ports.js';
import { startRedis } from '../../servers/redis.js';
import { test } from './boxed.js';
import { MAIN, until } from './sandbox.js';

const WHY =
  'this server started N s ago, or was found restarted or promoted then; locks are granted in N s, because a server that lost ' +
  'its memory must not grant twice; ?epochGuard=false is for throw-away servers (docs/engines/redis.md)';

function withoutNumbers(text: string): string {
  return text.replaceAll(/\b\d+ s\b/g, 'N s');
}

describe.concurrent('on a server that has just started', () => {
  test('run -n waits until locks are granted, says why, and runs', async ({ box }) => {
    await using server = await startRedis();
    const url = `redis://${LOOPBACK}:${server.port}?epochGuard=15s`;
    const { code, stdout, stderr } = await box.run(['run', 'nightly', '-n', '--url', url, '--', 'echo', 'ran']);
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'ran\n' });
    expect(withoutNumbers(stderr)).toBe(`holdfast: redis at ${LOOPBACK}:${server.port}: ${WHY}\n`);
  });

  test('run -w ends with 69, not as busy', async ({ box }) => {
    await using server = await startRedis();
    const url = `redis://${LOOPBACK}:${server.port}`;
    const args = ['run', 'nightly', '-w', '5s', '--ttl', '10m', '--busy-exit', '0', '--url', url, '--', 'echo', 'ran'];
    const { code, stdout, stderr } = await box.run(args);
    expect({ code, stdout }).toEqual({ code: 69, stdout: '' });
    const at = `redis at ${LOOPBACK}:${server.port}`;
    expect(withoutNumbers(stderr)).toBe(
      `holdfast: ${at}: ${WHY}\nholdfast: "nightly" can't be granted yet by ${at}: ${WHY}.\n`,
    );
  });

  test('the line at a terminal says for how long, and a signal ends the wait of -n', async ({ box }) => {
    await using server = await startRedis();
    const url = `redis://${LOOPBACK}:${server.port}`;
    const text = `exec '${process.execPath}' '${MAIN}' run nightly -n --ttl 10m --url '${url}' -- true`;
    const run = box.startCommand('script', ['-qefc', text, '/dev/null'], { interactive: true });
    const line = /holdfast: waiting for "nightly": the server has just started, locks in \d+m/;
    await until(() => line.test(run.stdout()));
    run.child.stdin!.write('\x03');
    expect((await run.ended).code).toBe(130);
  });
});
