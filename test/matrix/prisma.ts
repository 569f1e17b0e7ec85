/**
 * Prisma's client is generated, by a tool that is too large for everybody's `npm ci` and fetches programs when it is
 * installed. So it goes into .cache, without its install scripts; what it would fetch it does not need for this.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const FOLDER = resolve(import.meta.dirname, '../../.cache/prisma');
const PACKAGES = ['prisma@7', '@prisma/client@7', '@prisma/adapter-pg@7'];

const FILES = {
  'package.json': '{ "private": true, "type": "module" }\n',
  'schema.prisma': `
    generator client {
      provider = "prisma-client"
      output   = "./generated"
    }
    datasource db {
      provider = "postgresql"
    }
    model Account {
      id      Int @id
      balance Int
      @@map("account_prisma")
    }
  `,
  'prisma.config.ts': `
    import { defineConfig } from 'prisma/config';
    export default defineConfig({ schema: 'schema.prisma', datasource: { url: 'postgres://127.0.0.1/unused' } });
  `,
  'client.ts': `
    export { PrismaClient } from './generated/client.js';
    export { PrismaPg } from '@prisma/adapter-pg';
  `,
};

/** The module that examples/fence/prisma.mjs imports. */
export function generatePrisma(): string {
  mkdirSync(FOLDER, { recursive: true });
  for (const [file, text] of Object.entries(FILES)) writeFileSync(join(FOLDER, file), text);
  const run = (command: string, ...args: string[]): Buffer =>
    execFileSync(command, args, {
      cwd: FOLDER,
      stdio: 'inherit',
      // The program for migrations, which would be fetched.
      env: { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: '/bin/true' },
    });
  run('npm', 'install', '--ignore-scripts', '--engine-strict=false', '--no-audit', '--no-fund', ...PACKAGES);
  run(join(FOLDER, 'node_modules/.bin/prisma'), 'generate');
  return join(FOLDER, 'client.ts');
}
