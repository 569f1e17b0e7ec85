export * from './core.js';
export { Holdfast } from './holdfast-by-url.js';
export { schemaFromUrl } from './schemes.js';
export { ConflictError, MigrationLockError } from './sql/errors.js';
