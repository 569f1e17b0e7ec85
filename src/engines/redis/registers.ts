/**
 * A register is one key of its own, a hash: `value`, its `token`, when it was written (`at`), and the fence: the highest
 * token that a reader (`r`) and a writer (`w`) has presented. Tokens have 63 bits and Lua's numbers 53, so they are
 * compared as text of 19 digits. It lives as long as the server's memory does: until somebody deletes it, or as long as
 * its writer said.
 */
import type { Fence, Fenced, RegisterEntry, Registers } from '../../core/engine.js';
import { defineRepeatable, type RedisPort } from './client/port.js';
import { registerKey } from './queue/keys.js';

/**
 * KEYS: the register. ARGV: what to do (`get`, `open`, `set`), token, mode, value, how long to keep it in ms; 0 for ever.
 * Answer: 1, value, token, age; 1 if there is no value; or 0 and the newest token. O(1).
 */
const REGISTER = defineRepeatable(String.raw`
local what, token, mode, value, keepMs = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local time = redis.call('TIME')
local nowMs = time[1] * 1000 + math.floor(time[2] / 1000)
local none = '0000000000000000000'
local old, oldToken, at, read, wrote = unpack(redis.call('HMGET', KEYS[1], 'value', 'token', 'at', 'r', 'w'))
read, wrote = read or none, wrote or none
if what ~= 'get' then
  local stale
  if mode == 'read' then stale = token <= wrote else stale = token < wrote or token <= read end
  if stale then return { 0, read > wrote and read or wrote } end
end
if what == 'set' then
  redis.call('HSET', KEYS[1], 'value', value, 'token', token, 'at', nowMs, 'w', token)
  if keepMs == '0' then redis.call('PERSIST', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], keepMs) end
  return { 1 }
end
if what == 'open' and mode == 'write' then redis.call('HSET', KEYS[1], 'w', token) end
if what == 'open' and mode == 'read' and token > read then redis.call('HSET', KEYS[1], 'r', token) end
if not old then return { 1 } end
return { 1, old, oldToken, nowMs - at }
`);

export class RedisRegisters implements Registers {
  readonly #port: RedisPort;
  readonly #namespace: string;

  constructor(port: RedisPort, namespace: string) {
    this.#port = port;
    this.#namespace = namespace;
  }

  async read(name: string, fence?: Fence): Promise<Fenced<RegisterEntry | undefined>> {
    const { token, mode } = fence ?? { token: 0n, mode: 'read' };
    const [ok, ...rest] = await this.#run(name, [fence ? 'open' : 'get', digits(token), mode, '', '0']);
    if (Number(ok) !== 1) return { ok: false, newest: BigInt(String(rest[0])) };
    if (rest.length === 0) return { ok: true, value: undefined };
    const [value = '', writer = '', ageMs] = rest.map(String);
    return { ok: true, value: { value, token: BigInt(writer), ageMs: Number(ageMs) } };
  }

  async write(name: string, value: string, token: bigint, keepMs = 0): Promise<Fenced<void>> {
    const [ok, newest] = await this.#run(name, ['set', digits(token), 'write', value, `${keepMs}`]);
    return Number(ok) === 1 ? { ok: true, value: undefined } : { ok: false, newest: BigInt(String(newest)) };
  }

  async #run(name: string, args: readonly string[]): Promise<unknown[]> {
    const key = registerKey(this.#namespace, name, this.#port.cluster);
    return (await this.#port.run(REGISTER, [key], args)) as unknown[];
  }
}

function digits(token: bigint): string {
  return token.toString().padStart(19, '0');
}
