import type { JSX, TargetedSubmitEvent } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { hasLoggedIn, logIn, logOut } from '../feed/session.js';

export function LogIn(): JSX.Element {
  const key = useRef<HTMLInputElement>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (): Promise<void> => {
    setBusy(true);
    const wrong = await logIn(key.current?.value ?? '');
    setBusy(false);
    setProblem(wrong);
    if (wrong !== null) key.current?.select();
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

/** Nothing where the page has not logged in. */
export function LogOut(): JSX.Element | null {
  const [words, setWords] = useState('Log out');
  const end = async (): Promise<void> => {
    if (!(await logOut())) setWords('Not logged out: try again');
  };
  if (!hasLoggedIn()) return null;
  return (
    <button type="button" class="button log-out small" onClick={() => void end()}>
      {words}
    </button>
  );
}
