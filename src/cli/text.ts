/** How things are written for people. */

/** What could forge a line, drive a terminal, or turn the reading direction of what follows. */
const UNPRINTABLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

/** Others' words on one line of a terminal: labels and reasons come from anybody who may lock. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, '\uFFFD');
}

/** The lines of a statement of ours, for people to run, stay lines. */
export function printableLines(text: string): string {
  return text.split('\n').map(printable).join('\n');
}

/** One line of JSON. JSON.stringify leaves most of it as it is, and a terminal obeys to that too. */
export function json(value: unknown): string {
  const text = JSON.stringify(value);
  return `${text.replace(UNPRINTABLE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)}\n`;
}

/**
 * In each word from `://` up to the last '@', because a password that was not encoded may hold any character. Word by word:
 * one expression for all of it takes time by the square of a long one.
 */
export function maskCredentials(text: string, mask = '***@'): string {
  return text.replace(/\S+/g, (word) => {
    const [from, at] = [word.search(/:\/\/(?!\/)/), word.lastIndexOf('@')];
    return from === -1 || at < from + 3 ? word : `${word.slice(0, from)}://${mask}${word.slice(at + 1)}`;
  });
}

export function quote(name: string): string {
  return `"${printable(name)}"`;
}

/** `850ms`, `12s`, `3m05s`, `2h10m`, `4d02h`. */
export function age(ms: number): string {
  if (!Number.isFinite(ms)) return '-';
  const s = Math.floor(Math.max(0, ms) / 1_000);
  if (s < 1) return `${Math.floor(Math.max(0, ms))}ms`;
  if (s < 60) return `${s}s`;
  if (s < 3_600) return `${Math.floor(s / 60)}m${twoDigits(s % 60)}s`;
  if (s < 86_400) return `${Math.floor(s / 3_600)}h${twoDigits(Math.floor(s / 60) % 60)}m`;
  return `${Math.floor(s / 86_400)}d${twoDigits(Math.floor(s / 3_600) % 24)}h`;
}

function twoDigits(n: number): string {
  return String(n).padStart(2, '0');
}

/** Columns two spaces apart; the last one is not padded. Whatever a cell holds, it is printable. */
export function table(rows: readonly (readonly string[])[]): string {
  const cells = rows.map((row) => row.map(printable));
  const widths: number[] = [];
  for (const row of cells)
    for (const [column, cell] of row.entries()) widths[column] = Math.max(widths[column] ?? 0, cell.length);
  const line = (row: readonly string[]): string =>
    row.map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column]!))).join('  ');
  return cells.map((row) => `${line(row)}\n`).join('');
}
