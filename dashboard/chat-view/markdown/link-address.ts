const ALLOWED = new Set(['http:', 'https:', 'mailto:']);
const MOST_CHARACTERS = 4000;

/** The address that a link of an answer may lead to; null: none. Only http, https and mailto are allowed, and no address is relative to the page. */
export function linkAddress(written: string): string | null {
  const text = written
    .replace(/^<|>$/g, '')
    .replaceAll('&amp;', '&')
    .replace(/\\([!-/:-@[-`{-~])/g, '$1');
  if (text.length > MOST_CHARACTERS) return null;
  const whole = [text, bareAddress(text)].find((each) => URL.canParse(each));
  if (whole === undefined) return null;
  const { href, protocol } = new URL(whole);
  return ALLOWED.has(protocol) ? href : null;
}

/** A bare host or mailbox with its scheme; empty: it is neither. */
function bareAddress(text: string): string {
  if (/^www\./i.test(text)) return `https://${text}`;
  return /^[\w.+-]+@[\w.-]+$/.test(text) ? `mailto:${text}` : '';
}
