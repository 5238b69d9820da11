// The server: JSON over GET and POST, and one stream of events.

/** Fetch JSON. Throws an Error with the message of the server. */
export async function get(path) {
  return answer(await fetch(path, { headers: { Accept: "application/json" } }));
}

/** Ask the server to do something. Throws an Error with its message. */
export async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  return answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(body ?? {}) }));
}

async function answer(response) {
  const isJson = response.headers.get("Content-Type")?.startsWith("application/json");
  const content = isJson ? await response.json() : null;
  if (!response.ok) throw new Error(content?.message ?? `${response.status} ${response.statusText}`);
  return content;
}

/** Call `onJobs` whenever a job has changed, and `onConnection` when the connection comes and goes. */
export function follow(onJobs, onConnection) {
  const events = new EventSource("api/events");
  events.addEventListener("jobs", (event) => onJobs(JSON.parse(event.data)));
  events.onopen = () => onConnection(true);
  events.onerror = () => {
    onConnection(false);
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, 5000, onJobs, onConnection); // it was refused
  };
}
