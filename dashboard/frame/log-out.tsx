import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { forgetEverything, keptCount } from '../chat-view/conversation-actions.js';
import { hasLoggedIn, logOut } from '../feed/session.js';

const NOT_DONE = 'Not logged out: try again';

/** The button to log out; null if the page has not logged in. Where conversations are kept, it asks first what becomes of them. */
export function LogOut(): JSX.Element | null {
  const [words, setWords] = useState('Log out');
  const [kept, setKept] = useState(0);
  const end = async (beforeReload: () => Promise<void>): Promise<void> => {
    setKept(0);
    if (!(await logOut(beforeReload))) setWords(NOT_DONE);
  };
  const ask = async (): Promise<void> => {
    const count = await keptCount();
    if (count > 0) setKept(count);
    else await end(() => Promise.resolve());
  };
  if (!hasLoggedIn()) return null;
  return (
    <>
      <button type="button" class="button log-out small" aria-expanded={kept > 0} onClick={() => void ask()}>
        {words}
      </button>
      {kept > 0 && <LogOutChoice kept={kept} onEnd={(before) => void end(before)} onStay={() => setKept(0)} />}
    </>
  );
}

interface LogOutChoiceProps {
  kept: number;
  onEnd: (beforeReload: () => Promise<void>) => void;
  onStay: () => void;
}

function LogOutChoice({ kept, onEnd, onStay }: LogOutChoiceProps): JSX.Element {
  const conversations = kept === 1 ? 'A conversation is' : `${kept} conversations are`;
  const onKeyDown = ({ key }: KeyboardEvent): void => {
    if (key === 'Escape') onStay();
  };
  return (
    <section class="card log-out-choice" aria-label="Log out" onKeyDown={onKeyDown}>
      <p role="alert">
        {conversations} kept in this browser. Whoever opens this page here can read them once a key is given.
      </p>
      <button type="button" class="button button-bad" onClick={() => onEnd(forgetEverything)}>
        Log out and delete them
      </button>
      <button type="button" class="button" onClick={() => onEnd(() => Promise.resolve())}>
        Log out and keep them
      </button>
      <button type="button" class="button" onClick={onStay}>
        Stay
      </button>
    </section>
  );
}
