/** Names of the code in JSON that people and files see, and back: tokenIds <-> token_ids. */

/** A message's keys as JSON shows them, throughout. */
export function snakeCaseKeys(value: unknown): unknown {
  return mapKeys(value, (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));
}

/** What snakeCaseKeys made, with the keys of the code. A key with capitals, which it never makes, becomes one that is nobody's. */
export function camelCaseKeys(value: unknown): unknown {
  return mapKeys(value, (name) =>
    name.toLowerCase().replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase()),
  );
}

function mapKeys(value: unknown, rename: (name: string) => string): unknown {
  if (Array.isArray(value)) return value.map((member) => mapKeys(member, rename));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [rename(key), mapKeys(member, rename)]));
}
