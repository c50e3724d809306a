/** The pattern of names of clusters and nodes. */
export const IDENTIFIER_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;

/** That pattern in words. */
export const IDENTIFIER_RULE = 'letters, digits, ".", "_" and "-", at most 63 of them, a letter or digit first';

/** True for a text that may be the name of a cluster or a node. Such a name is safe in a path and in a URI. */
export function isIdentifier(text: string): boolean {
  return IDENTIFIER_PATTERN.test(text);
}
