import type { ComponentChildren, JSX, TargetedSubmitEvent } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { logIn } from '../feed/session.js';

interface KeyFormProps {
  /** Names the key that is wanted. */
  label: string;
  /** The page has no other purpose until the key is there. */
  isFirst: boolean;
  /** Called when main has taken the key. */
  onOpened?: () => void;
  /** Stands above the field. */
  children?: ComponentChildren;
}

/** Takes an API key, and opens a session with it. */
export function KeyForm({ label, isFirst, onOpened, children }: KeyFormProps): JSX.Element {
  const key = useRef<HTMLInputElement>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (): Promise<void> => {
    setBusy(true);
    const wrong = await logIn(key.current?.value ?? '');
    setBusy(false);
    setProblem(wrong);
    if (wrong === null) onOpened?.();
    else key.current?.select();
  };
  const onSubmit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    void submit();
  };
  return (
    <form class="key-form" onSubmit={onSubmit}>
      {children}
      <label for="api-key">{label}</label>
      <input
        id="api-key"
        ref={key}
        class="field"
        type="password"
        autocomplete="current-password"
        required
        autofocus={isFirst}
      />
      <p class="problem-text" role="alert">
        {problem}
      </p>
      <button type="submit" class="button button-main" disabled={isBusy}>
        Open
      </button>
    </form>
  );
}
