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

/** Bytes of "1 GiB", "512MiB", "2.5 GB" or a plain number; null if the text is not a size. */
export function parseByteSize(value: string | number): number | null {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(String(value));
  const unitBytes = UNITS[match?.[2]?.toLowerCase() ?? '?'];
  if (match?.[1] === undefined || unitBytes === undefined) return null;
  const bytes = Math.round(Number(match[1]) * unitBytes);
  return Number.isSafeInteger(bytes) ? bytes : null;
}

/** Memory for the rows of sequences: bytes, or auto; null if the value is neither, or 0 bytes. */
export function parseContextMemory(value: string | number): number | 'auto' | null {
  if (value === 'auto') return value;
  const bytes = parseByteSize(value);
  return bytes === 0 ? null : bytes;
}

/** "1.5 GiB": at most two digits behind the point. */
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
