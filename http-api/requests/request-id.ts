/** The form of an id that a client may give its request. The answer and the log have the same id. */
const REQUEST_ID_PATTERN = /^[A-Za-z0-9._-]{1,128}$/;

/** The client's id if it has that form, otherwise a new one. */
export function requestIdOf(given: string | string[] | undefined, make: () => string): string {
  return typeof given === 'string' && REQUEST_ID_PATTERN.test(given) ? given : make();
}
