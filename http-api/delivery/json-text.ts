/** A value of an answer that is written by its own text: numbers and the order of properties stay as written. */
export class JsonText {
  /** `text`: one JSON value. */
  constructor(private readonly text: string) {}

  /** The value on one line. Between the parts of a JSON value, a line break is like a space; strings contain none. */
  get line(): string {
    return this.text.replace(/[\r\n]+/g, ' ');
  }
}

/** JSON.stringify for values of plain objects and lists that may hold JsonText. */
export function jsonWithTexts(value: unknown): string {
  if (value instanceof JsonText) return value.line;
  // A list of a million numbers would block other requests for long if each number were written alone.
  if (isNumbers(value)) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((item) => jsonWithTexts(item ?? null)).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const properties = Object.entries(value)
    .filter(([, property]) => property !== undefined)
    .map(([key, property]) => `${JSON.stringify(key)}:${jsonWithTexts(property)}`);
  return `{${properties.join(',')}}`;
}

function isNumbers(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'number');
}
