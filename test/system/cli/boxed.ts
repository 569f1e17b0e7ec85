/** Tests of the command line that each have a sandbox of their own, so that they may run beside each other. */
import { test as base } from 'vitest';
import { Sandbox } from './sandbox.js';

export const test = base.extend<{ box: Sandbox }>({
  // oxlint-disable-next-line no-empty-pattern -- Vitest reads from the pattern which fixtures this one needs.
  box: async ({}, use) => {
    await using box = new Sandbox();
    await use(box);
  },
});
