/** Test runners without any configuration, and with fake timers. */
import { expect, test } from 'vitest';
import { runnerTests } from './programs.js';
import { Project, type Tool, toolsOf } from './project.js';

interface Runner extends Tool {
  readonly files: Readonly<Record<string, string>>;
  readonly run: readonly [string, ...string[]];
}

const REQUIRED = `const { AcquireTimeoutError, Holdfast } = require('holdfast');\n`;
const IMPORTED = `import { AcquireTimeoutError, Holdfast } from 'holdfast';\n`;

const jest = runnerTests({
  fake: 'jest.useFakeTimers();',
  advance: "jest.advanceTimersByTime(60_000); jest.setSystemTime(new Date('2040-01-01'));",
  real: 'jest.useRealTimers();',
});
const vitest = runnerTests({
  fake: 'vi.useFakeTimers();',
  advance: "vi.advanceTimersByTime(60_000); vi.setSystemTime(new Date('2040-01-01'));",
  real: 'vi.useRealTimers();',
});
const sinon = runnerTests({
  fake: 'const clock = sinon.useFakeTimers();',
  advance: 'clock.tick(60_000);',
  real: 'clock.restore();',
});
const node = runnerTests({
  fake: 'mock.timers.enable();',
  advance: 'mock.timers.tick(60_000);',
  real: 'mock.timers.reset();',
});

const RUNNERS: readonly Runner[] = [
  {
    name: 'jest, CommonJS',
    packages: ['jest@latest'],
    everyday: true,
    files: { 'locks.test.js': REQUIRED + jest },
    run: ['jest', '--rootDir', '.'],
  },
  {
    name: 'jest 29, CommonJS',
    packages: ['jest@29'],
    files: { 'locks.test.js': REQUIRED + jest },
    run: ['jest'],
  },
  {
    name: 'ts-jest, as NestJS has it',
    packages: ['jest@latest', 'ts-jest@latest', '@types/jest', 'typescript@5'],
    files: {
      'jest.config.js': `module.exports = { transform: { '^.+\\\\.ts$': 'ts-jest' } };`,
      'tsconfig.json': JSON.stringify({
        compilerOptions: { module: 'commonjs', moduleResolution: 'node10', target: 'es2023', esModuleInterop: true },
      }),
      'locks.test.ts': `import { memory } from 'holdfast/memory';\n${IMPORTED}${jest}void memory;\n`.replaceAll(
        '(error) =>',
        '(error: any) =>',
      ),
    },
    run: ['jest'],
  },
  {
    name: 'vitest',
    packages: ['vitest@4'],
    everyday: true,
    files: { 'locks.test.mjs': `import { test, vi } from 'vitest';\n${IMPORTED}${vitest}` },
    run: ['vitest', 'run', '--root', '.'],
  },
  {
    name: 'sinon',
    packages: ['sinon@latest'],
    files: {
      // node:test itself can't tell what passed once sinon has been there.
      'locks.mjs': `import sinon from 'sinon';\n${IMPORTED}
        const tests = [];
        const test = (_name, run) => tests.push(run);
        ${sinon}
        for (const run of tests) await run();
        console.log(tests.length + ' passed');`,
    },
    run: ['node', 'locks.mjs'],
  },
  {
    name: 'node:test',
    packages: [],
    everyday: true,
    files: { 'locks.test.mjs': `import { mock, test } from 'node:test';\n${IMPORTED}${node}` },
    run: ['node', '--test'],
  },
];

test.each(toolsOf(RUNNERS))('$name', async ({ packages, files, run: [tool, ...args] }) => {
  using project = await Project.make(packages, files);
  const said = await (tool === 'node' ? project.command(process.execPath, ...args) : project.tool(tool, ...args));
  expect(said).toMatch(/2 passed|pass 2/);
});
