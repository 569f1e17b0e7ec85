import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import * as coreErrors from '../../../src/core/errors.js';
import * as sqlErrors from '../../../src/sql/errors.js';

const errors = { ...coreErrors, ...sqlErrors };

const {
  AcquireTimeoutError,
  asHoldfastError,
  CapacityError,
  ConfigError,
  ClosedError,
  ConflictError,
  DeadlockError,
  EngineError,
  HoldfastError,
  LeaseLostError,
  MigrationLockError,
  StaleTokenError,
  UnsupportedError,
} = errors;

const each: readonly (readonly [string, string, coreErrors.HoldfastError])[] = [
  ['AcquireTimeoutError', 'HOLDFAST_TIMEOUT', new AcquireTimeoutError('n', 2_000)],
  ['LeaseLostError', 'HOLDFAST_LOST', new LeaseLostError('n', { reason: 'expired' }, 5n)],
  ['StaleTokenError', 'HOLDFAST_STALE_TOKEN', new StaleTokenError('n', 1n, 2n)],
  ['DeadlockError', 'HOLDFAST_DEADLOCK', new DeadlockError('never', ['n'])],
  ['CapacityError', 'HOLDFAST_CAPACITY', new CapacityError('n', 3, 4)],
  ['UnsupportedError', 'HOLDFAST_UNSUPPORTED', new UnsupportedError('no')],
  ['ConfigError', 'HOLDFAST_CONFIG', new ConfigError('wrong')],
  ['EngineError', 'HOLDFAST_ENGINE', new EngineError('down')],
  ['MigrationLockError', 'HOLDFAST_MIGRATING', new MigrationLockError('m')],
  ['ClosedError', 'HOLDFAST_CLOSED', new ClosedError()],
  ['ConflictError', 'HOLDFAST_CONFLICT', new ConflictError('row 1', 5)],
];

describe('every error', () => {
  test.each(each)('%s has the code %s, its own name, and is a HoldfastError', (name, code, error) => {
    expect(error).toBeInstanceOf(HoldfastError);
    expect(error).toBeInstanceOf(Error);
    expect(error).toMatchObject({ name, code });
    expect(String(error)).toMatch(new RegExp(`^${name}: `));
  });

  test('is listed here', () => {
    const classes = Object.entries(errors)
      .filter(([, value]) => typeof value === 'function' && value.prototype instanceof HoldfastError)
      .filter(([, value]) => value !== HoldfastError)
      .map(([name]) => name);
    expect(classes.sort()).toEqual(each.map(([name]) => name).sort());
  });
});

describe('a message', () => {
  test('a timeout says what, for how long, who holds it and how many are before us', () => {
    const holder = { label: 'billing@host:1', session: 's', token: 9n, since: 1 };
    const error = new AcquireTimeoutError('order:42', 2_000, { holder, place: 3 });
    expect(error.message).toContain(
      '"order:42" was not free within 2000 ms; held by billing@host:1, 3 before us in line',
    );
    expect(error).toMatchObject({ lock: 'order:42', timeoutMs: 2_000, holder, place: 3 });
    expect(new AcquireTimeoutError('n', 0).message).toContain('at the first try');
  });

  test.each(['expired', 'session', 'connection', 'evicted', 'maxHold', 'released'] as const)(
    'a loss by %s says so',
    (reason) => {
      const error = new LeaseLostError('n', { reason, detail: 'stuck deploy' }, 7n);
      expect(error).toMatchObject({ reason, token: 7n, lock: 'n' });
      expect(error.message).toMatch(/^The lease on "n" is over: .+ \(stuck deploy\)\. Another may hold it now/);
    },
  );

  test('others name the numbers that do not fit', () => {
    expect(new StaleTokenError('n', 1n, 2n)).toMatchObject({ token: 1n, newest: 2n, lock: 'n' });
    expect(new StaleTokenError('n', 1n, 2n).message).toMatch(/Token 1 is stale for "n": 2 /);
    expect(new CapacityError('gpu', 3, 4).message).toMatch(/"gpu" is in use with 4 permits, not 3/);
    expect(new CapacityError('gpu', 3, 4)).toMatchObject({ lock: 'gpu', expected: 3, actual: 4 });
    expect(new ConflictError('row 1', 5)).toMatchObject({ attempts: 5 });
    expect(new DeadlockError('m', ['a', 'b']).cycle).toEqual(['a', 'b']);
  });

  test('a name is quoted: it can neither break a line nor drive a terminal', () => {
    const name = 'a\n2026 FATAL forged\u009b31m\u2028"';
    for (const error of [
      new AcquireTimeoutError(name, 1),
      new LeaseLostError(name, { reason: 'expired' }),
      new StaleTokenError(name, 1n, 2n),
      new CapacityError(name, 1, 2),
    ]) {
      expect(error.message).toContain(String.raw`"a\n2026 FATAL forged\u009b31m\u2028\""`);
      expect(error.message).not.toMatch(/[\p{Cc}\u2028]/u);
    }
  });

  test('neither can what others wrote: a holder’s label, an operator’s reason', () => {
    const holder = { label: 'x\nFATAL', session: 's', since: 1 };
    expect(new AcquireTimeoutError('n', 1, { holder }).message).toContain(String.raw`held by x\u000aFATAL`);
    const lost = new LeaseLostError('n', { reason: 'evicted', detail: 'x\r\nFATAL' });
    expect(lost.message).toContain(String.raw`(x\u000d\u000aFATAL)`);
  });
});

/** What drives a terminal, forges a line, or turns the reading direction of what follows. */
const HOSTILE = 'x\n\u001b[31mFORGED\u009b\u009d\u2028\u2029\u061c\u200f\u202e\u2066\u007f';
const UNPRINTABLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u;

describe('whatever a server says', () => {
  test.each([
    ['EngineError', new EngineError(`The server says ${HOSTILE}.`)],
    ['ConfigError', new ConfigError(HOSTILE)],
    ['UnsupportedError', new UnsupportedError(HOSTILE)],
    ['ConflictError', new ConflictError(HOSTILE, 1)],
    ['DeadlockError', new DeadlockError(HOSTILE, [])],
    ['what a client threw', asHoldfastError(new Error(HOSTILE), 'enter')],
    ['LeaseLostError', new LeaseLostError(HOSTILE, { reason: 'connection', detail: HOSTILE })],
    ['AcquireTimeoutError', new AcquireTimeoutError('n', 1, { holder: { label: HOSTILE, session: 's', since: 1 } })],
  ])('the message of %s is one printable line', (_name, error) => {
    expect(error.message).not.toMatch(UNPRINTABLE);
    expect(error.message).toContain(String.raw`x\u000a\u001b[31mFORGED\u009b`);
  });

  test('so is that of a cause, and its stack has no lines but frames', () => {
    const thrown = new RangeError(HOSTILE);
    for (const error of [new EngineError('down', { cause: thrown }), asHoldfastError(thrown, 'enter')]) {
      const { message, stack } = error.cause as Error;
      expect(message).not.toMatch(UNPRINTABLE);
      const [first, ...frames] = stack!.split('\n');
      expect(first).toBe(`RangeError: ${message}`);
      for (const frame of frames) expect(frame).toMatch(/^ {4}at /);
    }
    expect((new EngineError('down', { cause: HOSTILE }).cause as Error).message).not.toMatch(UNPRINTABLE);
  });

  test('a statement of ours keeps its lines', () => {
    expect(new EngineError('run:', { statement: 'CREATE TABLE a (\n  b INTEGER\n);' }).message).toBe(
      'run:\nCREATE TABLE a (\n  b INTEGER\n);',
    );
  });

  test('a capacity is a number, also where the store has something else', () => {
    const error = new CapacityError('gpu', 3, '\u001b[31m');
    expect(error.message).toContain('in use with NaN permits, not 3');
    expect(error.actual).toBeNaN();
    expect(new CapacityError('gpu', 3, '4').actual).toBe(4);
  });

  test.each([[{ a: 1 }], [['x']], [null], [{ toString: 1 }], [Object.create(null)], [5], [true]])(
    'a reason that is no text is no error: %j',
    (detail) => {
      const error = new LeaseLostError('n', { reason: 'evicted', detail: detail as never });
      expect(error.message).toContain('it was evicted');
      expect(['string', 'undefined']).toContain(typeof error.detail);
    },
  );

  test('a reason that is very long does not fill the log', () => {
    const error = new LeaseLostError('n', { reason: 'evicted', detail: 'x'.repeat(100_000) });
    expect(error.message.length).toBeLessThan(2_000);
    expect(error.detail).toHaveLength(100_000);
  });
});

describe("an engine's error", () => {
  test('may be tried again unless it says otherwise', () => {
    expect(new EngineError('down').retryable).toBe(true);
    expect(new EngineError('no rights', { retryable: false }).retryable).toBe(false);
  });

  test('is made of whatever an adapter threw; our own pass unchanged', () => {
    const own = new ConfigError('wrong');
    expect(asHoldfastError(own, 'enter')).toBe(own);
    const error = asHoldfastError(new TypeError('boom'), 'enter');
    expect(error).toBeInstanceOf(EngineError);
    expect(error.message).toBe('enter failed: boom');
    expect(error.cause).toMatchObject({ name: 'TypeError', message: 'boom' });
    expect(asHoldfastError(undefined, 'beat')).toBeInstanceOf(EngineError);
    expect(asHoldfastError({ secret: 'Canary7' }, 'beat').message).toBe('beat failed: unknown error');
  });

  test('says what went wrong though the client’s message is empty', () => {
    // This is what Node gives for a refused connection to a name with two addresses.
    const refused = Object.assign(new AggregateError([new Error('::1'), new Error('127.0.0.1')]), {
      code: 'ECONNREFUSED',
    });
    expect(asHoldfastError(refused, 'open').message).toBe('open failed: ECONNREFUSED');
    expect(asHoldfastError(new RangeError(''), 'open').message).toBe('open failed: RangeError');
  });

  test('keeps name, message, code and stack of its cause', () => {
    const thrown = Object.assign(new RangeError('boom'), { code: 'ECONNRESET' });
    const { cause } = new EngineError('enter failed', { cause: thrown });
    expect(cause).toMatchObject({ name: 'RangeError', message: 'boom', code: 'ECONNRESET', stack: thrown.stack });
    expect(cause).not.toBe(thrown);
  });

  test('hides what clients hang on their errors, and passwords in URLs', () => {
    const url = 'redis://bob:Canary7@db:6379/0';
    const thrown = Object.assign(new Error(`connect to ${url} failed`, { cause: new Error('Canary7') }), {
      code: 'WRONGPASS',
      command: { name: 'auth', args: ['bob', 'Canary7'] },
      options: { password: 'Canary7' },
      errors: [new Error('Canary7')],
      toJSON: () => 'Canary7',
      [inspect.custom]: () => 'Canary7',
    });
    for (const error of [asHoldfastError(thrown, 'open'), new EngineError('down', { cause: thrown })]) {
      const shown = inspect(error, { depth: 10, showHidden: true });
      expect(shown).toContain('connect to redis://***@db:6379/0 failed');
      expect(shown).toContain('WRONGPASS');
      expect(shown).not.toContain('Canary7');
      expect(JSON.stringify(error)).not.toContain('Canary7');
      expect(JSON.stringify(error.cause)).not.toContain('Canary7');
    }
  });

  test.each([
    ['redis://bob:Ca/na?ry7@db'],
    ['redis://bob:Canary7@x@db'],
    ['redis://:Canary7@db,rediss://bob:Canary7@db2'],
    ['postgres://Canary7@db'],
  ])('hides the password in %s, encoded or not', (url) => {
    const shown = inspect(asHoldfastError(new Error(`(${url}) refused`), 'open'), { depth: 10 });
    expect(shown).not.toMatch(/na\?ry7|Canary7/);
    expect(shown).toContain('refused');
  });

  test('hides it also in what is thrown and is no error', () => {
    const { cause } = new EngineError('down', { cause: 'redis://bob:Canary7@db is down' });
    expect(inspect(cause)).not.toContain('Canary7');
    expect(cause).toBeInstanceOf(Error);
  });
});
