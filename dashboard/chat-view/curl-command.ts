/**
 * A command for sh that asks `url` with this body. Everything that came from the conversation stands in single quotes, in which sh reads
 * nothing but the quote itself. The key is not told: it comes from the environment, and may be empty where main has none.
 */
export function curlCommand(url: string, body: object): string {
  return [
    `curl -N ${quoted(url)}`,
    '-H "Authorization: Bearer $ODMOE_API_KEY"',
    "-H 'Content-Type: application/json'",
    `-d ${quoted(JSON.stringify(body))}`,
  ].join(' \\\n  ');
}

/** One word of sh, whatever is in it. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
