/** How --help says a default value: lists with commas between, words without quotes; null: there is none worth saying. Pure. */
export function defaultWords(value: unknown): string | null {
  if (Array.isArray(value)) {
    const words = value.map(defaultWords);
    return words.length === 0 || words.includes(null) ? null : words.join(',');
  }
  if (typeof value === 'string') return value === '' ? null : value;
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : null;
}

interface Described {
  description: string;
  defaultValue?: unknown;
  defaultValueDescription?: string | undefined;
}

/** A copy of commander's option or argument whose default reads as above; its description's own "(default: ...)" stands alone. */
export function withReadableDefault<T extends Described>(described: T): T {
  const copy = Object.assign(Object.create(Object.getPrototypeOf(described) as object) as T, described);
  if (described.defaultValue === undefined || described.defaultValueDescription !== undefined) return copy;
  const words = described.description.includes('(default') ? null : defaultWords(described.defaultValue);
  if (words === null) copy.defaultValue = undefined;
  else copy.defaultValueDescription = words;
  return copy;
}
