/**
 * A command for sh that sends this body to `url`. Text from the conversation is in single quotes; inside them, only the quote itself has a
 * meaning for sh. `wantsKey`: main needs a key; the command does not contain it but reads it from the environment.
 */
export function curlCommand(url: string, body: object, wantsKey: boolean): string {
  return [
    `curl -N ${quoted(url)}`,
    ...(wantsKey ? ['-H "Authorization: Bearer $ODMOE_API_KEY"'] : []),
    "-H 'Content-Type: application/json'",
    `-d ${quoted(JSON.stringify(body))}`,
  ].join(' \\\n  ');
}

/** Quotes any text as one word of sh. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
