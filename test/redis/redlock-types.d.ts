/** redlock 5 has types, but its package.json does not say where. */
declare module 'redlock' {
  export { default } from 'redlock/dist/index.js';
}
