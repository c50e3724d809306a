const UNITS: Record<string, number> = {
  '': 1,
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  kib: 1024,
  mib: 1024 ** 2,
  gib: 1024 ** 3,
  tib: 1024 ** 4,
};

/** Bytes of "1 GiB", "512MiB", "2.5 GB" or a plain number; null when the text is no size. */
export function parseByteSize(value: string | number): number | null {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(String(value));
  const unitBytes = UNITS[match?.[2]?.toLowerCase() ?? '?'];
  if (match?.[1] === undefined || unitBytes === undefined) return null;
  const bytes = Math.round(Number(match[1]) * unitBytes);
  return Number.isSafeInteger(bytes) ? bytes : null;
}

/** Of memory for the rows of sequences: bytes, or auto; null when it is neither, or no memory at all. */
export function parseContextMemory(value: string | number): number | 'auto' | null {
  if (value === 'auto') return value;
  const bytes = parseByteSize(value);
  return bytes === 0 ? null : bytes;
}

/** "1.5 GiB": two figures behind the point at most. */
export function formatByteSize(bytes: number): string {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${Number(value.toFixed(2))} ${units[unit] ?? ''}`;
}
