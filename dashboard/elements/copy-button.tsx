import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { CheckIcon, CopyIcon } from './icons.js';

const DONE_SHOWN_MS = 2000;

/** Copies a text. Browsers offer the clipboard only to pages from https or from this machine; other pages copy a selected text. */
async function copyText(text: string): Promise<void> {
  if (window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'unseen';
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

/** `title`: names the copied text, for example "the command". */
export function CopyButton({ text, title }: { text: string; title: string }): JSX.Element {
  const [isDone, setDone] = useState(false);
  useEffect(() => {
    if (!isDone) return;
    const timer = window.setTimeout(() => setDone(false), DONE_SHOWN_MS);
    return () => window.clearTimeout(timer);
  }, [isDone]);
  const copy = async (): Promise<void> => {
    await copyText(text);
    setDone(true);
  };
  return (
    <button type="button" class="button copy-button" onClick={() => void copy()} aria-label={`Copy ${title}`}>
      {isDone ? <CheckIcon /> : <CopyIcon />}
      <span aria-live="polite">{isDone ? 'Copied' : 'Copy'}</span>
    </button>
  );
}
