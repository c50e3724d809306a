/** What stands before a key in an address of the page. Browsers send this part of an address to no server. */
const KEY_MARK = '#key=';

/** The address of the page that opens it with the key. `url`: that of main's HTTP API, without a slash at its end. */
export function pageLink(url: string, key: string): string {
  return `${url}/${KEY_MARK}${encodeURIComponent(key)}`;
}

/** The key in the part of an address behind its "#", which is included; null: there is none. */
export function keyOfLink(hash: string): string | null {
  if (!hash.startsWith(KEY_MARK)) return null;
  try {
    const key = decodeURIComponent(hash.slice(KEY_MARK.length));
    return key === '' ? null : key;
  } catch {
    // It was cut or changed on its way.
    return null;
  }
}
