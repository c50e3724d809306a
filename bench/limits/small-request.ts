const LIMIT_MS = 60_000;

/** Asks main for one token, like an ordinary user. False: no token came. */
export async function askOnce(url: string): Promise<boolean> {
  try {
    const answer = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ prompt: 'Once upon a time', max_tokens: 1 }),
      signal: AbortSignal.timeout(LIMIT_MS),
    });
    await answer.text();
    return answer.status === 200;
  } catch {
    return false;
  }
}
