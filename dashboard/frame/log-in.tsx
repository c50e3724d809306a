import type { JSX, TargetedSubmitEvent } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { startFeed } from '../feed/event-feed.js';

/** Main then gives the browser a cookie, which no script can read. Returns what went wrong; null: nothing. */
async function logIn(key: string): Promise<string | null> {
  try {
    const { ok, status } = await fetch('/cluster/session', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ key }),
    });
    if (ok) return null;
    return status === 401 ? 'Main does not know this key.' : `Main refused with HTTP status ${status}.`;
  } catch {
    return 'Main does not answer.';
  }
}

export function LogIn(): JSX.Element {
  const key = useRef<HTMLInputElement>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (): Promise<void> => {
    setBusy(true);
    const wrong = await logIn(key.current?.value ?? '');
    setBusy(false);
    setProblem(wrong);
    if (wrong === null) startFeed();
    else key.current?.select();
  };
  const onSubmit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    void submit();
  };
  return (
    <form class="card log-in" onSubmit={onSubmit}>
      <h1>This cluster wants a key</h1>
      <p class="quiet">One of the keys in the file that main was started with (--api-keys).</p>
      <label for="api-key">API key</label>
      <input id="api-key" ref={key} class="field" type="password" autocomplete="current-password" required autofocus />
      <p class="problem-text" role="alert">
        {problem}
      </p>
      <button type="submit" class="button button-main" disabled={isBusy}>
        Open
      </button>
    </form>
  );
}
