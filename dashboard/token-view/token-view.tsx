import type { JSX } from 'preact';

export function TokenView(): JSX.Element {
  return <h1>A token</h1>;
}
