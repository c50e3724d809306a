/** The effect of a key in the chat. */
export type KeyAction = 'send' | 'stop' | 'new' | 'edit' | 'keys';

/** A key that is pressed, and where. */
export interface PressedKey {
  key: string;
  code: string;
  ctrlKey: boolean;
  metaKey: boolean;
  shiftKey: boolean;
  altKey: boolean;
  /** A text is being composed, as with Chinese and Japanese; the key belongs to the composition. */
  isComposing: boolean;
}

export interface KeyPlace {
  /** The composer; another field that takes text; or neither. */
  field: 'composer' | 'other' | 'none';
  /** The composer has no text. */
  isEmpty: boolean;
  isRunning: boolean;
  /** Something lies over the view that Escape closes. */
  hasOverlay: boolean;
}

/** The list of keys, as the view shows it. */
export const KEYS: readonly { keys: string; what: string }[] = [
  { keys: 'Enter', what: 'sends the question, also an edited one' },
  { keys: 'Shift Enter', what: 'makes a line in the question' },
  { keys: 'Esc', what: 'stops the answer; leaves an edited question, whose text stays for the next “Edit”' },
  { keys: '↑', what: 'in the empty field: edits the last question' },
  { keys: 'Ctrl Shift O, or ⌘ Shift O', what: 'begins a new chat' },
  { keys: '← →', what: "in an answer: one token's alternatives after another's" },
  { keys: '?', what: 'shows these keys, where nothing is typed' },
];

/** The action of a key; null: the key is not ours. Keys with a text of their own count only where nothing is typed. */
export function keyAction(pressed: PressedKey, { field, isEmpty, isRunning, hasOverlay }: KeyPlace): KeyAction | null {
  if (pressed.isComposing) return null;
  if (pressed.key === 'Escape') return isRunning && !hasOverlay ? 'stop' : null;
  if (isNewChat(pressed)) return 'new';
  if (pressed.ctrlKey || pressed.metaKey || pressed.altKey) return null;
  if (field === 'none') return pressed.key === '?' ? 'keys' : null;
  if (field !== 'composer' || pressed.shiftKey) return null;
  if (pressed.key === 'Enter') return 'send';
  return pressed.key === 'ArrowUp' && isEmpty ? 'edit' : null;
}

/** The action of a key in the editor of a question; null: the key is not the editor's. `isInField`: it is pressed in the text, not on a button. */
export function editorAction(pressed: PressedKey, isInField: boolean): 'send' | 'leave' | null {
  const { key, isComposing, ctrlKey, metaKey, altKey, shiftKey } = pressed;
  if (isComposing) return null;
  if (key === 'Escape') return 'leave';
  return key === 'Enter' && isInField && !ctrlKey && !metaKey && !altKey && !shiftKey ? 'send' : null;
}

/** By its place on the keyboard, too: another script has another letter there. */
function isNewChat({ key, code, ctrlKey, metaKey, shiftKey, altKey }: PressedKey): boolean {
  return shiftKey && !altKey && ctrlKey !== metaKey && (key.toLowerCase() === 'o' || code === 'KeyO');
}
