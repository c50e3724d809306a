/** A client may name its request by this; it comes back with the answer and stands in the log. */
const REQUEST_ID_PATTERN = /^[A-Za-z0-9._-]{1,128}$/;

/** The id that the client gave, where it is a sane one; else one that is made. */
export function requestIdOf(given: string | string[] | undefined, make: () => string): string {
  return typeof given === 'string' && REQUEST_ID_PATTERN.test(given) ? given : make();
}
