/** How things are written for people. */

/** Others' words on one line of a terminal: labels and reasons come from anybody who may lock. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, '\uFFFD');
}

/** Up to the last '@' of the word, because a password that was not encoded may hold any character. */
export function maskCredentials(text: string): string {
  return text.replace(/:\/\/(?!\/)\S*@/g, '://***@');
}

export function quote(name: string): string {
  return `"${printable(name)}"`;
}

/** `850ms`, `12s`, `3m05s`, `2h10m`, `4d02h`. */
export function age(ms: number): string {
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

/** Columns two spaces apart; the last one is not padded. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const line = (row: readonly string[]): string =>
    row.map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column]!))).join('  ');
  return rows.map((row) => `${line(row)}\n`).join('');
}
