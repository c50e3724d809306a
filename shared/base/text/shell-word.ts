/** A word of a command line, quoted where a shell would read it otherwise. Pure. */
export function shellWord(text: string): string {
  return /^[\w.:@%+,/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
