import { ConfigError } from '../core/errors.js';

/**
 * An engine's URL, parsed by hand: several hosts are no WHATWG URL, and `new URL` puts its whole input, password
 * included, into the error it throws. No error here ever carries the input.
 */
export interface EngineUrl {
  readonly scheme: string;
  /** Between `scheme:` and `?`, for schemes without hosts: `sqlite:./locks.db`, `memory:other`. */
  readonly path: string;
  readonly hosts: readonly UrlHost[];
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly params: ReadonlyMap<string, string>;
}

interface UrlHost {
  readonly host: string;
  readonly port: number | undefined;
}

export function parseEngineUrl(text: string): EngineUrl {
  const [, scheme, rest] = /^([a-z][a-z0-9+.-]*):(.*)$/is.exec(text) ?? [];
  if (scheme === undefined || rest === undefined) {
    // Only what is nothing but a host and a port is shown: anything else may hold a password.
    const bare = /^[\w.-]+:\d{1,5}$/.test(text) ? ` Did you mean 'redis://${text}'?` : '';
    throw new ConfigError(`An engine's URL begins with a scheme, like 'memory:' or 'redis://localhost:6379'.${bare}`);
  }
  // An unencoded '/' or '?' ends a password early: the rest of it would pass for a path or a parameter, and be shown.
  if (endOfAuthority(rest) < rest.lastIndexOf('@')) {
    throw new ConfigError(
      "An engine's URL has an '@' in its path or parameters. Percent-encode special characters in user and password: '/' as '%2F', " +
        "'?' as '%3F'; and an '@' that belongs there as '%40'.",
    );
  }
  const questionMark = rest.indexOf('?');
  const address = questionMark === -1 ? rest : rest.slice(0, questionMark);
  const params = parseParams(questionMark === -1 ? '' : rest.slice(questionMark + 1));
  const base = { scheme: scheme.toLowerCase(), params };
  if (!address.startsWith('//')) return { ...base, path: address, hosts: [], user: undefined, password: undefined };
  return { ...base, ...parseAuthority(address.slice(2)) };
}

/** Where the path or the parameters begin; the end of the text if there are none. */
function endOfAuthority(rest: string): number {
  const questionMark = rest.indexOf('?');
  const slash = rest.startsWith('//') ? rest.indexOf('/', 2) : -1;
  return Math.min(...[questionMark, slash, rest.length].filter((at) => at !== -1));
}

/** Which system a URL stands for, whoever asks there and how: without credentials and parameters. */
function placeOf({ scheme, hosts, path }: EngineUrl): string {
  return `${scheme}:${hosts.map(({ host, port }) => `//${host}:${port ?? ''}`).join(',')}${path}`;
}

/** What a source made of this URL tells of where it is. */
export function located(url: EngineUrl): { readonly place: string; readonly title: string } {
  const { scheme, hosts, path } = url;
  return {
    place: placeOf(url),
    title: hosts.length > 0 ? titleOf(scheme, hosts) : path ? `${scheme} at ${path}` : scheme,
  };
}

/** For people: where an engine is, without credentials. */
export function titleOf(
  engine: string,
  hosts: readonly { readonly host: string; readonly port?: number | undefined }[],
): string {
  const addresses = hosts.map(
    ({ host, port }) => (host.includes(':') ? `[${host}]` : host) + (port === undefined ? '' : `:${port}`),
  );
  return `${engine} at ${addresses.join(', ')}`;
}

/** On a client of the user's, as far as it shows where it goes. */
export function titleOfClient(engine: string, options: unknown): string {
  const { host, port } = (options ?? {}) as { host?: unknown; port?: unknown };
  if (typeof host !== 'string' || host === '') return engine;
  return titleOf(engine, [{ host, port: typeof port === 'number' ? port : undefined }]);
}

function parseAuthority(text: string): Pick<EngineUrl, 'path' | 'hosts' | 'user' | 'password'> {
  const slash = text.indexOf('/');
  const authority = slash === -1 ? text : text.slice(0, slash);
  const at = authority.lastIndexOf('@');
  const [user, password] = at === -1 ? [] : splitOnce(authority.slice(0, at), ':');
  return {
    path: slash === -1 ? '' : text.slice(slash),
    hosts: authority
      .slice(at + 1)
      .split(',')
      .map(parseHost),
    user: user ? decode(user) : undefined,
    password: password === undefined ? undefined : decode(password),
  };
}

function parseHost(text: string): UrlHost {
  const match = /^(\[[0-9a-f:.]+\]|[^:[\]\s]+)(?::(\d{1,5}))?$/i.exec(text);
  const port = match?.[2] === undefined ? undefined : Number(match[2]);
  if (!match || (port !== undefined && (port < 1 || port > 65_535))) {
    throw new ConfigError(
      "An engine's URL has a host that can't be read. Hosts look like 'name', 'name:6379' or '[::1]:6379', with commas in " +
        'between; percent-encode special characters in user and password.',
    );
  }
  return { host: match[1]!.replace(/^\[|\]$/g, ''), port };
}

function parseParams(text: string): Map<string, string> {
  const params = new Map<string, string>();
  for (const pair of text.split('&').filter(Boolean)) {
    const [key, value = ''] = splitOnce(pair, '=');
    params.set(decode(key), decode(value));
  }
  return params;
}

function splitOnce(text: string, separator: string): [string, string?] {
  const at = text.indexOf(separator);
  return at === -1 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

/** A part that is taken for what it says, not for syntax: a password, or the name of a database in the path. */
export function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new ConfigError("An engine's URL has a broken percent-encoding. Write '%' as '%25'.");
  }
}
