const DIGEST = /[0-9a-f]{64}/g;

/** The text of a signed roster without its signature and with zeros for the digests of keys: the same for equal changes of equal clusters. Pure. */
export function rosterWithoutKeys(signed: Uint8Array): Buffer {
  const [head, , ...text] = Buffer.from(signed).toString().split('\n');
  return Buffer.from([head, ...text].join('\n').replace(DIGEST, (digest) => '0'.repeat(digest.length)));
}
