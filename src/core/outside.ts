import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * Runs what is nobody's in particular (a beat, a timer, a connection, a listener's call) outside of the async context of
 * whoever happened to cause it: else the first request's context would live as long as the session that it opened, and
 * every beat would show up in that request's trace.
 */
export const outside: <T>(run: () => T) => T = AsyncLocalStorage.snapshot();
