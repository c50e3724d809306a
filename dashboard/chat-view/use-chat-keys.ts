import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { keyAction, type KeyPlace, type PressedKey } from './chat-keys.js';
import { editLast, newConversation, stopAnswer } from './chat-store.js';

interface ChatKeys {
  area: RefObject<HTMLTextAreaElement | null>;
  isRunning: boolean;
  send: () => void;
  showKeys: () => void;
}

/** What Escape closes before it stops an answer. */
const OVERLAYS = 'dialog[open], .alternatives';
/** Elements whose keys are the user's text or choice. */
const FIELDS = 'input, textarea, select, [contenteditable]';
/** Safari ends a composition before its Enter arrives, which then has this code alone. */
const COMPOSING_KEY_CODE = 229;

/** Listens to keys as long as the chat is shown. */
export function useChatKeys(chat: ChatKeys): void {
  const newest = useRef(chat);
  newest.current = chat;
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => press(event, newest.current);
    document.addEventListener('keydown', listen);
    return () => document.removeEventListener('keydown', listen);
  }, []);
}

export function pressedKey(event: KeyboardEvent): PressedKey {
  const { key, code, ctrlKey, metaKey, shiftKey, altKey } = event;
  const isComposing = event.isComposing || event.keyCode === COMPOSING_KEY_CODE;
  return { key, code, ctrlKey, metaKey, shiftKey, altKey, isComposing };
}

function press(event: KeyboardEvent, { area, isRunning, send, showKeys }: ChatKeys): void {
  if (event.defaultPrevented) return;
  const place: KeyPlace = {
    field: fieldOf(event.target, area.current),
    isEmpty: area.current?.value === '',
    isRunning,
    hasOverlay: document.querySelector(OVERLAYS) !== null,
  };
  const action = keyAction(pressedKey(event), place);
  if (action === null) return;
  event.preventDefault();
  if (action === 'send') send();
  else if (action === 'stop') stopAnswer();
  else if (action === 'new') newConversation();
  else if (action === 'edit') editLast();
  else showKeys();
}

function fieldOf(target: EventTarget | null, composer: HTMLTextAreaElement | null): KeyPlace['field'] {
  if (target === composer) return 'composer';
  return target instanceof Element && target.closest(FIELDS) !== null ? 'other' : 'none';
}
