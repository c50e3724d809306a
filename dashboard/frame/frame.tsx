import type { JSX, TargetedSubmitEvent } from 'preact';
import { useEffect, useState, useRef } from 'preact/hooks';
import { ChatView } from '../chat-view/chat-view.js';
import { ClusterView } from '../cluster-view/cluster-view.js';
import { useDashboard } from '../feed/dashboard-store.js';
import type { FeedConnection, DashboardState } from '../feed/dashboard-state.js';
import { TimeView } from '../time-view/time-view.js';
import { TokenView } from '../token-view/token-view.js';
import { ChatIcon, ClusterIcon, MoonIcon, SunIcon, TimeIcon, TokenIcon } from '../elements/icons.js';
import { isDark, rememberTheme } from '../elements/theme.js';
import { startFeed } from '../feed/event-feed.js';
import { hasLoggedIn, logIn, logOut } from '../feed/session.js';

const VIEWS: Record<Route, () => JSX.Element> = {
  cluster: ClusterView,
  token: TokenView,
  time: TimeView,
  chat: ChatView,
};

const ICONS: Record<Route, () => JSX.Element> = {
  cluster: ClusterIcon,
  token: TokenIcon,
  time: TimeIcon,
  chat: ChatIcon,
};

const selectConnection = (state: DashboardState): FeedConnection => state.connection;
const selectName = (state: DashboardState): string => state.cluster?.name ?? '';

/** Header, tabs, and the view that the page's address names. */
export function PageFrame(): JSX.Element {
  const route = useRoute();
  const connection = useDashboard(selectConnection);
  const name = useDashboard(selectName);
  useEffect(() => {
    document.title = [ROUTE_TITLES[route], name, 'odmoe'].filter((part) => part !== '').join(' · ');
  }, [route, name]);
  const View = VIEWS[route];
  return (
    <div class="frame">
      <a class="skip-link" href="#view" onClick={focusView}>
        Skip to the view
      </a>
      <header class="header">
        <p class="brand">odmoe{name !== '' && <span class="brand-cluster">{name}</span>}</p>
        {connection !== 'locked' && <Tabs route={route} />}
        <div class="header-end">
          {connection !== 'locked' && <LogOut />}
          <ThemeSwitch />
        </div>
      </header>
      <ConnectionNote connection={connection} />
      <main id="view" class={`view view-${route}`} tabIndex={-1}>
        {connection === 'locked' ? <LogIn /> : <View />}
      </main>
    </div>
  );
}

/** Moves the focus to the view, because the address names a view, not an element in it. */
function focusView(event: Event): void {
  event.preventDefault();
  document.getElementById('view')?.focus();
}

function Tabs({ route }: { route: Route }): JSX.Element {
  return (
    <nav class="tabs" aria-label="Views">
      {PAGE_ROUTES.map((each) => {
        const Icon = ICONS[each];
        return (
          <a key={each} class="tab" href={`#${each}`} aria-current={each === route ? 'page' : undefined}>
            <Icon />
            <span>{ROUTE_TITLES[each]}</span>
          </a>
        );
      })}
    </nav>
  );
}

function ThemeSwitch(): JSX.Element {
  const [dark, setDark] = useState(isDark);
  const change = (): void => {
    rememberTheme(dark ? 'light' : 'dark');
    setDark(!dark);
  };
  return (
    <button
      type="button"
      class="icon-button"
      onClick={change}
      aria-label={dark ? 'Use light colours' : 'Use dark colours'}
    >
      {dark ? <SunIcon /> : <MoonIcon />}
    </button>
  );
}

/** A note that the shown data may be old. Its element is always present, so that screen readers notice its text. */
function ConnectionNote({ connection }: { connection: FeedConnection }): JSX.Element {
  return (
    <div role="status" class="connection">
      {connection === 'lost' && (
        <p class="connection-note">
          <span>Main does not answer. What you see is the last it said.</span>
          <button type="button" class="button" onClick={startFeed}>
            Try now
          </button>
        </p>
      )}
    </div>
  );
}

function LogIn(): JSX.Element {
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

/** The button to log out; null if the page has not logged in. */
function LogOut(): JSX.Element | null {
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

const PAGE_ROUTES = ['cluster', 'token', 'time', 'chat'] as const;
type Route = (typeof PAGE_ROUTES)[number];

const ROUTE_TITLES: Record<Route, string> = {
  cluster: 'Cluster',
  token: 'A token',
  time: 'Over time',
  chat: 'Chat',
};

function routeOf(hash: string): Route {
  const name = hash.replace(/^#/, '').split('/')[0];
  return PAGE_ROUTES.find((route) => route === name) ?? 'cluster';
}

/** The view that the page's address names; it follows changes of the address. */
function useRoute(): Route {
  const [route, setRoute] = useState(() => routeOf(location.hash));
  useEffect(() => {
    const follow = (): void => setRoute(routeOf(location.hash));
    window.addEventListener('hashchange', follow);
    return () => window.removeEventListener('hashchange', follow);
  }, []);
  return route;
}
