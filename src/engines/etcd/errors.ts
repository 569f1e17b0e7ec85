import { EngineError } from '../../core/errors.js';
import { EtcdError, STATUS } from './client/status.js';

/** Trying again can't cure these: a wrong password, missing rights, a server that is no etcd. */
const FINAL: ReadonlySet<number> = new Set([STATUS.invalidArgument, STATUS.permissionDenied, STATUS.unimplemented]);

/** What etcd answered, as an error of ours. */
export async function explained<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof EtcdError)) throw error;
    throw new EngineError(`etcd: ${error.message}`, { retryable: !FINAL.has(error.status), cause: error });
  }
}
