import { EngineError } from '../../core/errors.js';
import { CODE, ZooKeeperError } from './client/status.js';

/** Trying again can't cure these: missing rights, a server that is too old. */
const FINAL: ReadonlySet<number> = new Set([CODE.noAuth, CODE.authFailed, CODE.unimplemented]);

/** What ZooKeeper answered, as an error of ours. */
export async function explained<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof ZooKeeperError)) throw error;
    throw new EngineError(`ZooKeeper: ${error.message}`, { retryable: !FINAL.has(error.status), cause: error });
  }
}
