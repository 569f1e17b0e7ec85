/**
 * Projects as users have them: the package as it would be published, unpacked into a fresh folder, and a tool that builds or runs
 * a small program with it. In the ordinary run the tools are those that are installed here; with HOLDFAST_MATRIX they come from
 * the registry, in the versions that are named and the newest.
 */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';

const ROOT = resolve(import.meta.dirname, '../..');
const run = promisify(execFile);

const FROM_REGISTRY = process.env['HOLDFAST_MATRIX'] !== undefined;

export interface Tool {
  readonly name: string;
  /** What is installed for it, with versions: `esbuild@0.28`. */
  readonly packages: readonly string[];
  /** Where nothing is downloaded, it is run as it is installed here. */
  readonly everyday?: boolean;
}

/** Those that are run now. */
export function toolsOf<T extends Tool>(tools: readonly T[]): readonly T[] {
  return FROM_REGISTRY ? tools : tools.filter(({ everyday }) => everyday);
}

let packed: Promise<string> | undefined;

/** The package, built before the tests. */
async function pack(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-packed-'));
  const { stdout } = await run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder], {
    cwd: ROOT,
    maxBuffer: 1e8,
  });
  const listed = JSON.parse(stdout) as { filename: string }[] | Record<string, { filename: string }>;
  return join(folder, Object.values(listed)[0]!.filename);
}

export class Project implements Disposable {
  readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  static async make(packages: readonly string[], files: Readonly<Record<string, string>>): Promise<Project> {
    const project = new Project(mkdtempSync(join(tmpdir(), 'holdfast-project-')));
    project.write({ 'package.json': '{ "private": true }', ...files });
    packed ??= pack();
    const tarball = await packed;
    if (FROM_REGISTRY) await project.command('npm', 'install', '--no-audit', '--no-fund', tarball, ...packages);
    else await project.#unpack(tarball, packages);
    return project;
  }

  async #unpack(tarball: string, packages: readonly string[]): Promise<void> {
    mkdirSync(this.path('node_modules/holdfast'), { recursive: true });
    await this.command('tar', 'xzf', tarball, '-C', 'node_modules/holdfast', '--strip-components', '1');
    for (const each of packages) {
      const name = each.replace(/(?<=.)@.*/, '');
      mkdirSync(dirname(this.path(`node_modules/${name}`)), { recursive: true });
      symlinkSync(join(ROOT, 'node_modules', name), this.path(`node_modules/${name}`));
    }
  }

  path(file: string): string {
    return join(this.folder, file);
  }

  write(files: Readonly<Record<string, string>>): void {
    for (const [file, text] of Object.entries(files)) {
      mkdirSync(dirname(this.path(file)), { recursive: true });
      writeFileSync(this.path(file), text);
    }
  }

  /** What it said. Rejects, with all of it, where it fails. */
  async command(program: string, ...args: readonly string[]): Promise<string> {
    const { NODE_OPTIONS: _, VITEST: __, NODE_ENV: ___, ...rest } = process.env;
    const env = { ...rest, NEXT_TELEMETRY_DISABLED: '1' };
    try {
      const { stdout, stderr } = await run(program, args, { cwd: this.folder, env, maxBuffer: 1e8, timeout: 170_000 });
      return stdout + stderr;
    } catch (error) {
      const { message, stdout } = error as { message: string; stdout?: string };
      throw new Error(`${message}\n${stdout ?? ''}`, { cause: error });
    }
  }

  /** A tool that is installed in the project. */
  tool(name: string, ...args: readonly string[]): Promise<string> {
    const bin = FROM_REGISTRY ? this.path('node_modules/.bin') : join(ROOT, 'node_modules/.bin');
    return this.command(join(bin, name), ...args);
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
