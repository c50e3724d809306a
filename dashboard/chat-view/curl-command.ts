/**
 * A command for sh that asks `url` with this body. Everything that came from the conversation stands in single quotes, in which sh reads
 * nothing but the quote itself. `wantsKey`: main wants one; it is not told, but comes from the environment.
 */
export function curlCommand(url: string, body: object, wantsKey: boolean): string {
  return [
    `curl -N ${quoted(url)}`,
    ...(wantsKey ? ['-H "Authorization: Bearer $ODMOE_API_KEY"'] : []),
    "-H 'Content-Type: application/json'",
    `-d ${quoted(JSON.stringify(body))}`,
  ].join(' \\\n  ');
}

/** One word of sh, whatever is in it. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
