/** The pattern of names of clusters and nodes. */
export const IDENTIFIER_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;

/** That pattern in words. */
export const IDENTIFIER_RULE = 'letters, digits, ".", "_" and "-", at most 63 of them, a letter or digit first';

/**
 * Names of files and directories that lie beside those of clusters, where the directories of state and of data are one (services of the system, and
 * users who have set both to one).
 */
export const NAMES_BESIDE_CLUSTERS = ['packs', 'mended', 'chat-history'] as const;

const BESIDE = new Set<string>(NAMES_BESIDE_CLUSTERS);

/** The rule for names of clusters in words. */
export const CLUSTER_NAME_RULE = `${IDENTIFIER_RULE}, and none of ${NAMES_BESIDE_CLUSTERS.join(', ')}, which odmoe's own files have`;

/** True for a text that may be the name of a cluster. */
export function isClusterName(text: string): boolean {
  return isIdentifier(text) && !BESIDE.has(text);
}

/** True for a text that may be the name of a cluster or a node. Such a name is safe in a path and in a URI. */
export function isIdentifier(text: string): boolean {
  return IDENTIFIER_PATTERN.test(text);
}
