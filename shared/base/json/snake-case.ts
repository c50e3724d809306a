/** Converts names between the code and the JSON of people and files: tokenIds <-> token_ids. */

/** Converts all keys of a message, at every level, to the form of JSON. */
export function snakeCaseKeys(value: unknown): unknown {
  return mapKeys(value, (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));
}

/** Reverses snakeCaseKeys. snakeCaseKeys never makes a key with capitals; such a key becomes one that no code reads. */
export function camelCaseKeys(value: unknown): unknown {
  return mapKeys(value, (name) =>
    name.toLowerCase().replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase()),
  );
}

function mapKeys(value: unknown, rename: (name: string) => string): unknown {
  if (Array.isArray(value)) return value.map((item) => mapKeys(item, rename));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, property]) => [rename(key), mapKeys(property, rename)]));
}
