/**
 * One library, however often it is loaded: as ES modules and as CommonJS in one process, or once by each of two packages. What
 * belongs to the process is kept under a registered symbol, and classes know their own kind by a brand.
 */
const SHARED: unique symbol = Symbol.for('holdfast.shared');

/** What the process has one of: made by whichever copy comes first. A change of its shape needs another key. */
export function shared<T>(key: string, make: () => T): T {
  const world = globalThis as { [SHARED]?: Map<string, unknown> };
  const everything = (world[SHARED] ??= new Map());
  if (!everything.has(key)) everything.set(key, make());
  return everything.get(key) as T;
}

/** Classes of this library by their names: bundlers that shorten names would change them. */
const brands = new WeakMap<object, symbol>();

/** To be called in a static block of the class. */
export function brand(ours: { readonly prototype: object }, name: string): void {
  const mark = Symbol.for(`holdfast.${name}`);
  brands.set(ours, mark);
  Object.defineProperty(ours, 'name', { value: name });
  Object.defineProperty(ours.prototype, mark, { value: true });
}

/** `instanceof` for a branded class. Others that extend one are classes like any. */
export function isOfBrand(kind: object, value: unknown): boolean {
  const mark = brands.get(kind);
  if (mark === undefined) return Function.prototype[Symbol.hasInstance].call(kind, value);
  return typeof value === 'object' && value !== null && mark in value;
}
