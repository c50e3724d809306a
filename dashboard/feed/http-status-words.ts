/** An answer without words of main's own: a refusal, or a failure of main or of what stands between. */
export function httpStatusWords(status: number): string {
  if (status < 500) return `Main refused with HTTP status ${status}.`;
  return `Main, or a proxy before it, failed with HTTP status ${status}. Try again; if it stays so, main's log says why.`;
}
