import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

const DONE_SHOWN_MS = 2000;

/**
 * A button that copies a text. Browsers forbid the clipboard to pages from another machine without TLS; then the text is shown and selected,
 * so that the user copies it by the keys.
 */
export function CopyText({ label, text }: { label: string; text: () => string }): JSX.Element {
  const [isDone, setDone] = useState(false);
  const [shown, setShown] = useState<string | null>(null);
  useEffect(() => {
    if (!isDone) return;
    const timer = window.setTimeout(() => setDone(false), DONE_SHOWN_MS);
    return () => window.clearTimeout(timer);
  }, [isDone]);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text());
      setShown(null);
      setDone(true);
    } catch {
      setShown(text());
    }
  };
  return (
    <>
      <button type="button" class="button turn-button" onClick={() => void copy()}>
        <span aria-live="polite">{isDone ? 'Copied' : label}</span>
      </button>
      {shown !== null && <TextToCopy text={shown} />}
    </>
  );
}

function TextToCopy({ text }: { text: string }): JSX.Element {
  const box = useRef<HTMLPreElement>(null);
  useLayoutEffect(() => {
    if (box.current === null) return;
    box.current.focus();
    window.getSelection()?.selectAllChildren(box.current);
  }, [text]);
  return (
    <pre ref={box} class="text-to-copy small" tabIndex={0} role="group" aria-label="Text to copy" dir="auto">
      {text}
    </pre>
  );
}
