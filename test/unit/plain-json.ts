import { type ExactJson, JsonFloat } from '../../shared/base/json/exact-json.js';

/** The value that JSON.parse would give for the same text. */
export function plainJson(value: ExactJson): unknown {
  if (value instanceof JsonFloat) return value.value;
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value)) return value.map(plainJson);
  if (!(value instanceof Map)) return value;
  return Object.fromEntries([...value].map(([key, member]) => [key, plainJson(member)]));
}
