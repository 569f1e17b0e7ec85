/**
 * Where a server can't be had, the test files that would start it are left out, and the run says so at its end. What a file
 * needs is read off its imports: whoever reaches `test/servers/redis.ts` starts a Redis.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import type { Reporter, Vitest } from 'vitest/node';

/** Where `npm run servers` writes down what it could not provide. */
export const MISSING_FILE = '.cache/missing-servers.json';

/** By the name of its module in this folder: why it is not here, and what would help. */
type Missing = Readonly<Record<string, string>>;

interface NotRunFiles {
  readonly server: string;
  readonly reason: string;
  readonly files: readonly string[];
}

export function filesNotRun(root: string): readonly NotRunFiles[] {
  const record = join(root, MISSING_FILE);
  if (!existsSync(record)) return [];
  const missing = JSON.parse(readFileSync(record, 'utf8')) as Missing;
  const tests = testFiles(join(root, 'test')).map((file) => ({ file, reached: reachedFrom(file) }));
  return Object.entries(missing).map(([server, reason]) => {
    const module = join(root, 'test/servers', `${server}.ts`);
    const files = tests.filter(({ reached }) => reached.has(module)).map(({ file }) => relative(root, file));
    return { server, reason, files };
  });
}

/** Says at the end what was left out of the projects that ran: nothing is skipped in silence. */
export class NotRun implements Reporter {
  readonly #places: Readonly<Record<string, readonly string[]>>;
  readonly #notRun: readonly NotRunFiles[];
  #chosen: readonly string[] = [];

  /** @param places of each project: folders and files. */
  constructor(places: Readonly<Record<string, readonly string[]>>, notRun: readonly NotRunFiles[]) {
    this.#places = places;
    this.#notRun = notRun;
  }

  onInit({ projects }: Vitest): void {
    this.#chosen = projects.flatMap(({ name }) => this.#places[name] ?? []);
  }

  onTestRunEnd(): void {
    for (const { server, reason, files } of this.#notRun) {
      const wanted = files.filter((file) => this.#chosen.some((place) => file.startsWith(place)));
      if (wanted.length === 0) continue;
      console.log(`\nNot run, because there is no ${server} here:\n  ${wanted.join('\n  ')}\n${reason}`);
    }
  }
}

function testFiles(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  return entries.filter((name) => name.endsWith('.test.ts')).map((name) => join(folder, name));
}

/** All modules that this one imports, itself included. Types alone start nothing. */
function reachedFrom(file: string, reached = new Set<string>()): ReadonlySet<string> {
  if (reached.has(file) || !existsSync(file)) return reached;
  reached.add(file);
  const imports = readFileSync(file, 'utf8').matchAll(/^(?:import|export|\}) (?!type\b).*?from '(\.[^']+)\.js';$/gm);
  for (const [, path] of imports) reachedFrom(resolve(dirname(file), `${path}.ts`), reached);
  return reached;
}
