import type { JSX } from 'preact';

export function ChatView(): JSX.Element {
  return <h1>Chat</h1>;
}
